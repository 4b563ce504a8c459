/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_POSTERN_H
#define POSTERN_POSTERN_H

/* Everything that a program needs to use Postern. The interfaces of stores,
   sources and handler kinds are in postern/sys/. */

#include <postern/box.h>
#include <postern/change.h>
#include <postern/error.h>
#include <postern/event.h>
#include <postern/guard.h>
#include <postern/handler.h>
#include <postern/health.h>
#include <postern/inspect.h>
#include <postern/message.h>
#include <postern/metrics.h>
#include <postern/publish.h>
#include <postern/pull.h>
#include <postern/runner.h>
#include <postern/source.h>
#include <postern/version.h>

#endif
