/* SPDX-License-Identifier: MIT */

/* The scripted source, whose broker acknowledges by offsets, as a target. */

#include "conformance/scripted_source.h"
#include "conformance/source_target.h"

const struct source_target source_target = {
	.name = "offsets",
	.open = scripted_open_offsets,
	.close = scripted_close,
	.create = scripted_create,
	.put = scripted_put,
	.put_bad = scripted_put_bad,
	.acknowledged = scripted_acknowledged,
	.disconnect = scripted_disconnect,
	.shuffle = scripted_shuffle,
	.pauses = true,
};
