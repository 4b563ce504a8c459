/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_TROUBLE_H
#define POSTERN_CORE_TROUBLE_H

/*
 * Texts that the core, the runner and the stores pass to a postern_remark, and
 * by which the server's log chooses the level of a line.
 *
 * Level info: OVER is a whole text, the others are beginnings. All other texts
 * that a runner reports are errors, unless they are listed below.
 */
#define POSTERN__TROUBLE_OVER "store available again"
#define POSTERN__TROUBLE_CLEANED "cleaned up "
#define POSTERN__TROUBLE_TAKEN "recovered "
#define POSTERN__TROUBLE_WAITING "waiting "
#define POSTERN__TROUBLE_CONNECTED "connected source "

/* Level warning, a beginning: the messages wait until somebody changes a
   configuration. */
#define POSTERN__TROUBLE_STRANDED "staged messages wait: "

/* The beginning of the only remark at the opening of a store that has level
   info; the others are warnings. */
#define POSTERN__REMARK_CREATED "created store"

/* A whole text. A program that handles POSTERN_EVENT_LOCK_LOST can ignore
   it. */
#define POSTERN__TROUBLE_LOCK_LOST \
	"processing lock lost; another node may be processing"

/*
 * How long a run is snoozed if it failed because of this machine or the store
 * and not because of the handler: fork failed, the disk is full. No failure is
 * counted.
 */
#define POSTERN__TROUBLE_DELAY_MS 5000

#endif
