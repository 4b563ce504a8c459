/* SPDX-License-Identifier: MIT */
/*
 * `tls`: the files are named when the configuration is read, and loaded when a
 * server starts or reads it again. So commands need no right to read the key.
 */

#include "server/config_section.h"

#include <string.h>

#include "base/fail.h"
#include "server/tls.h"

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
