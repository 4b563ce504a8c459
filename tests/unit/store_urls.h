/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_STORE_URLS_H
#define POSTERN_TESTS_STORE_URLS_H

/* The URLs of all kinds of stores. */
#ifdef POSTERN_POSTGRES
#define STORE_URLS "sqlite:FILE, memory: or postgres://USER@HOST/DATABASE"
#else
#define STORE_URLS "sqlite:FILE or memory:"
#endif

#endif
