/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_NOTIFY_H
#define POSTERN_SERVER_NOTIFY_H

/*
 * Reports the state of the server to its service manager, if it has one, by the
 * protocol of sd_notify(3): a datagram to $NOTIFY_SOCKET.
 */

#define POSTERN__NOTIFY_READY "READY=1"
#define POSTERN__NOTIFY_STOPPING "STOPPING=1"
/* To be sent about once a second; the manager restarts a server that does
   not. */
#define POSTERN__NOTIFY_ALIVE "WATCHDOG=1"

/* Send one of these. A failure is ignored: without a manager nobody waits. */
void postern__notify(const char *state);

#endif
