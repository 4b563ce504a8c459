/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_POSTERN_H
#define POSTERN_POSTERN_H

/* Everything a program that uses Postern needs. Those who write a store or a
   handler kind also want postern/sys/. */

#include <postern/box.h>
#include <postern/error.h>
#include <postern/event.h>
#include <postern/handler.h>
#include <postern/inspect.h>
#include <postern/message.h>
#include <postern/runner.h>
#include <postern/version.h>

#endif
