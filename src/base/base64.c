/* SPDX-License-Identifier: MIT */

/* Four characters are three bytes; the last group may be padded. */

#include "base/base64.h"

#include <stdint.h>

static const char alphabet[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* The value of a character, or -1. */
static int value_of(char c) {
	if (c >= 'A' && c <= 'Z') {
		return c - 'A';
	}
	if (c >= 'a' && c <= 'z') {
		return c - 'a' + 26;
	}
	if (c >= '0' && c <= '9') {
		return c - '0' + 52;
	}
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decode one group whose last `padding` characters are '='. */
static bool decode_group(const char *text, size_t padding, uint8_t *out) {
	uint32_t bits = 0;
	for (size_t i = 0; i < 4; i++) {
		int value = i < 4 - padding ? value_of(text[i]) : 0;
		if (value < 0) {
			return false;
		}
		bits = bits << 6 | (uint32_t)value;
	}
	for (size_t i = 0; i < 3 - padding; i++) {
		out[i] = (uint8_t)(bits >> (16 - 8 * i));
	}
	/* The bits that the padding cuts off must be zero, so that each sequence
	   of bytes has one encoding. */
	return (bits & ((UINT32_C(1) << 8 * padding) - 1)) == 0;
}

bool postern__base64_decode(const char *text, size_t len, void *out,
		size_t *len_out) {
	if (len % 4 != 0) {
		return false;
	}
	uint8_t *bytes = out;
	size_t written = 0;
	for (size_t at = 0; at < len; at += 4) {
		size_t padding = 0;
		if (at + 4 == len) {
			padding = text[len - 1] != '=' ? 0 : text[len - 2] != '=' ? 1 : 2;
		}
		if (!decode_group(text + at, padding, bytes + written)) {
			return false;
		}
		written += 3 - padding;
	}
	*len_out = written;
	return true;
}

void postern__base64_encode(const void *bytes, size_t len, char *out) {
	const uint8_t *from = bytes;
	for (size_t at = 0; at < len; at += 3, out += 4) {
		size_t left = len - at < 3 ? len - at : 3;
		uint32_t bits = (uint32_t)from[at] << 16;
		bits |= left > 1 ? (uint32_t)from[at + 1] << 8 : 0;
		bits |= left > 2 ? (uint32_t)from[at + 2] : 0;
		out[0] = alphabet[bits >> 18];
		out[1] = alphabet[bits >> 12 & 63];
		out[2] = left > 1 ? alphabet[bits >> 6 & 63] : '=';
		out[3] = left > 2 ? alphabet[bits & 63] : '=';
	}
}
