/* SPDX-License-Identifier: MIT */
/*
 * `tls`: the files are named when the configuration is read, and loaded when a
 * server starts or reads it again. So commands need no right to read the key.
 */

#include "server/config_section.h"

#include <postern/sys/clock.h>
#include <string.h>

#include "base/fail.h"
#include "base/time.h"
#include "server/tls.h"

/* An ACME client renews a month before the end. */
#define EXPIRES_SOON_MS (7 * INT64_C(86400000))

void postern__config_tls_check(struct postern__config *config) {
	const struct postern__config_values *values = &config->values;
	if (!postern__config_nearer(values, "tls.cert_file", "tls.key_file") ||
			!values->tls_cert_file == !values->tls_key_file) {
		return;
	}
	if (values->tls_cert_file) {
		postern__config_mistake(config, values, "tls.cert_file",
				"tls: a certificate needs its key: add 'key_file'");
	} else {
		postern__config_mistake(config, values, "tls.key_file",
				"tls: a key needs its certificate: add 'cert_file'");
	}
}

void postern__config_tls_remarks(const struct postern__config *config,
		postern__config_remark *remark, void *context) {
	const struct postern_clock *clock = postern_clock_system();
	const int64_t now = clock->wall_ms(clock->context);
	struct postern__tls *tls;
	struct postern_error error;
	int64_t from;
	int64_t until;
	if (postern__config_tls(config, &tls, NULL) != POSTERN_OK || !tls) {
		return; /* a mistake, which is reported as such */
	}
	postern__tls_times(tls, &from, &until);
	postern__tls_release(tls);
	if (from <= now && until - now > EXPIRES_SOON_MS) {
		return;
	}
	char text[POSTERN__TIME_TEXT_MAX];
	postern__time_format(from > now ? from : until, text);
	(void)postern__fail(&error, POSTERN_E_INVALID,
			"tls: clients refuse the certificate %s %s; replace it, and reload "
			"the server",
			from > now    ? "until"
			: until > now ? "from"
						  : "since",
			text);
	(void)postern__config_fail_at(config, &config->values, "tls.cert_file",
			&error);
	remark(context, error.text);
}

int postern__config_tls(const struct postern__config *config,
		struct postern__tls **out, struct postern_error *error) {
	const struct postern__config_values *values = &config->values;
	struct postern_error ignored;
	error = error ? error : &ignored;
	if (!values->tls_cert_file) {
		*out = NULL;
		return POSTERN_OK;
	}
	int r = postern__tls_load(values->tls_cert_file, values->tls_key_file, out,
			error);
	if (r != POSTERN_OK && r != POSTERN_E_NOMEM) {
		bool key = strncmp(error->text, "key", 3) == 0;
		(void)postern__config_fail_at(config, values,
				key ? "tls.key_file" : "tls.cert_file", error);
	}
	return r;
}
