/* SPDX-License-Identifier: MIT */
/*
 * Postern in C++17: a unique_ptr owns the box, errors are exceptions, and the
 * handler is a lambda.
 *
 * A callback must not throw; the wrapper turns an exception into a retry.
 *
 *   c++ -std=c++17 -o cpp cpp.cpp $(pkg-config --cflags --libs postern)
 */

#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <postern/postern.h>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

struct Destroy {
	void operator()(postern_box *box) const {
		postern_box_destroy(box);
	}
};
using Box = std::unique_ptr<postern_box, Destroy>;

using Handler =
		std::function<void(const postern_message &, const postern_delivery &)>;

void check(int code, const postern_error &error) {
	if (code != POSTERN_OK) {
		throw std::runtime_error(error.text);
	}
}

/* The callback; `context` is the Handler. */
void call(void *context, const postern_message *message,
		const postern_delivery *delivery, postern_outcome *outcome) {
	try {
		(*static_cast<Handler *>(context))(*message, *delivery);
	} catch (const std::exception &problem) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, problem.what());
	} catch (...) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, "unknown exception");
	}
}

Box open(const char *url, const char *channel, const char *key,
		Handler &handler) {
	postern_error error{};
	postern_box *raw = nullptr;
	check(postern_box_open(url, nullptr, &raw, &error), error);
	Box box(raw);

	postern_policy policy;
	postern_policy_init(&policy);
	policy.max_retry_delay_ms = 0; /* retry at once: this is an example */
	postern_handler_options options{};
	options.size = sizeof options;
	options.key = key;
	options.callback = call;
	options.context = &handler;
	options.policy = &policy;
	check(postern_box_add_channel(box.get(), channel, nullptr, &error), error);
	check(postern_box_add_handler(box.get(), channel, &options, &error), error);
	check(postern_box_start(box.get(), &error), error);
	return box;
}

void accept(const Box &box, const char *channel, const std::string &id,
		std::string_view body) {
	postern_error error{};
	postern_message message{};
	message.size = sizeof message;
	message.id = id.c_str();
	message.body = body.data();
	message.body_len = body.size();
	int code =
			postern_box_accept(box.get(), channel, &message, nullptr, &error);
	if (code != POSTERN_E_DUPLICATE) {
		check(code, error);
	}
}

} /* namespace */

int main() {
	try {
		Handler print = [](const postern_message &message,
								const postern_delivery &delivery) {
			std::printf("%s, attempt %u\n", message.id,
					static_cast<unsigned>(delivery.attempt));
			if (delivery.attempt < 3) {
				throw std::runtime_error("not yet");
			}
		};
		/* The handler must outlive the box that calls it. */
		Box box = open("memory:", "events", "print", print);
		accept(box, "events", "a", "hello");
		accept(box, "events", "a", "hello");

		postern_error error{};
		size_t count = 0;
		check(postern_box_process(box.get(), 0, &count, &error), error);
		std::printf("runs: %zu\n", count);
		return 0;
	} catch (const std::exception &problem) {
		std::fprintf(stderr, "cpp: %s\n", problem.what());
		return 1;
	}
}
