# SPDX-License-Identifier: MIT
"""A client of Postern, in one file with nothing but the standard library.

Send a message. It is durable when send() returns, and the same id on every try
makes a repetition a duplicate, so trying again is safe:

    client = postern.Client("http://127.0.0.1:7420", token_file="/etc/shop/token")
    client.send("orders", {"order": 7}, id="order-7", type="order.placed")

Work on the deliveries of a handler of the kind `pull`, until SIGTERM:

    def charge(delivery):
        if not charge_card(delivery.json()):
            raise postern.Retry("the card terminal is down")

    client.work("charge", charge, concurrency=4)

Check a webhook that Postern sent (or anybody who signs as Standard Webhooks does):

    message_id = postern.verify_webhook("whsec_...", headers, body)

An address is http://HOST[:PORT], https://HOST[:PORT] or unix:PATH. Times are in
seconds. Needs Python 3.8 or newer. A Client may be used from any thread.
"""

import base64
import collections
import email.utils
import hashlib
import hmac
import http.client
import json
import logging
import queue
import random
import signal
import socket
import ssl
import threading
import time
import urllib.parse
import uuid
from concurrent.futures import ThreadPoolExecutor

__all__ = [
    "Client", "Conflict", "Delivery", "Discard", "Error", "Hold", "Invalid",
    "InvalidSignature", "NotAllowed", "NotFound", "Outcome", "Poison", "Receipt",
    "Retry", "Snooze", "Unavailable", "Worker", "verify_webhook",
]

log = logging.getLogger("postern")

# Pauses between tries grow from the first to the second, and are partly random.
PAUSE_S_MIN = 0.1
PAUSE_S_MAX = 5
# What one request claims, by the default of `pull.max`, and settles: 64 KiB.
CLAIM_COUNT_MAX = 100
SETTLE_COUNT_MAX = 1000
SETTLE_LEN_MAX = 60000
REASON_LEN_MAX = 1000
# Digits of a time in seconds: enough for 30,000 years.
TIME_LEN_MAX = 12
# Ten years, as everywhere.
DELAY_S_MAX = 10 * 365 * 86400


class Error(Exception):
    """A request that failed. `status` is that of HTTP, or None. Of this class
    itself: the server's certificate is not trusted, or this is not Postern."""

    def __init__(self, text, status=None, retry_after=None):
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after  # seconds, or None


class Invalid(Error):
    """The request breaks a rule: 400, 413, 415, 422. Do not repeat it."""


class NotAllowed(Error):
    """No token, a wrong one, or one without the right: 401, 403."""


class NotFound(Error):
    """No such channel or handler: 404."""


class Conflict(Error):
    """send(): another body was accepted under this id. extend(): the lease is
    lost. 409."""


class Unavailable(Error):
    """The server cannot be reached, or asks to come back later: 429, 5xx. All
    tries were used up; the request can be repeated."""


class InvalidSignature(Error):
    """A webhook that was not signed with this secret, or not recently."""


class Outcome(Exception):
    """What a function that works on a delivery raises instead of returning,
    which means done. Any other exception is a Retry."""

    def __init__(self, reason="", delay=None):
        super().__init__(reason)
        if delay is not None and not 0 <= delay <= DELAY_S_MAX:
            raise ValueError(f"a delay of {delay} seconds")
        self.delay = delay


class Retry(Outcome):
    """Try again, after `delay` seconds or the handler's backoff; a failure."""


class Snooze(Outcome):
    """Try again after `delay` seconds; not a failure, no attempt is spent."""

    def __init__(self, delay, reason=""):
        super().__init__(reason, delay)


class Poison(Outcome):
    """This message will never work: keep it for a person to look at."""


class Discard(Outcome):
    """Nothing to do for this message."""


class Hold(Outcome):
    """The handler is at fault, not this message: hold the handler."""


Receipt = collections.namedtuple("Receipt", "status id source seq parked")
Receipt.__doc__ = """What send() returns. `status` is 'accepted' or 'duplicate';
`parked` says that no handler wants the message's type."""


class Delivery:
    """One message for one handler. `lost` is set when the lease has been lost:
    somebody else may work on it, and its result will not count."""

    def __init__(self, handler, item):
        self.handler = handler
        self.seq = item["seq"]
        self.fence = item["fence"]
        self.attempt = item["attempt"]
        self.message = item["message"]
        self.lost = threading.Event()
        if "body_base64" in item:
            self.body = base64.b64decode(item["body_base64"])
        else:
            self.body = (item.get("body") or "").encode()

    @property
    def id(self):
        """The message's id, the same on every attempt."""
        return self.message["id"]

    def json(self):
        return json.loads(self.body)

    def where(self, **more):
        """The delivery as a request names it."""
        return {"seq": self.seq, "handler": self.handler, "fence": self.fence, **more}


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, **options):
        super().__init__("postern", **options)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Connections:
    """Connections to one address that are used again."""

    def __init__(self, address, ca_file):
        url = urllib.parse.urlsplit(address)
        self.idle = []
        self.prefix = ""
        if url.scheme == "unix":
            path = address[len("unix:"):]
            self.open = lambda timeout: UnixConnection(path, timeout=timeout)
        elif url.scheme in ("http", "https") and url.hostname:
            self.prefix = url.path.rstrip("/")
            kind, options = http.client.HTTPConnection, {}
            if url.scheme == "https":
                kind = http.client.HTTPSConnection
                options = {"context": ssl.create_default_context(cafile=ca_file)}
            self.open = lambda timeout: kind(
                url.hostname, url.port, timeout=timeout, **options)
        else:
            raise ValueError(f"the address '{address}' is not http://HOST,"
                             " https://HOST or unix:PATH")

    def request(self, path, body, headers, timeout):
        """Returns status, headers and body. An idle connection may have been
        closed by the server meanwhile: then a new one is used."""
        try:
            connection = self.idle.pop()
        except IndexError:
            return self.use(self.open(timeout), path, body, headers, timeout)
        try:
            return self.use(connection, path, body, headers, timeout)
        except (http.client.RemoteDisconnected, ConnectionError):
            return self.use(self.open(timeout), path, body, headers, timeout)

    def use(self, connection, path, body, headers, timeout):
        try:
            connection.timeout = timeout
            if connection.sock:
                connection.sock.settimeout(timeout)
            try:
                connection.request("POST", self.prefix + path, body, headers)
            except (BrokenPipeError, ConnectionResetError):
                # Too large a body is answered before it was read. If nothing was
                # answered, the next call raises.
                pass
            response = connection.getresponse()
            text = response.read()
        except BaseException:
            connection.close()
            raise
        if not response.will_close:
            self.idle.append(connection)
        return response.status, response.headers, text


def milliseconds(seconds):
    """A duration as the server reads it."""
    return f"{round(seconds * 1000)}ms"


def seconds_of(retry_after):
    """Retry-After as seconds from now: a number or a date. None: neither."""
    if retry_after is None:
        return None
    try:
        return max(0, float(int(retry_after)))
    except ValueError:
        pass
    try:
        date = email.utils.parsedate_to_datetime(retry_after)
        return max(0.0, date.timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def error_of(status, headers, text):
    """The exception for a response that is no success."""
    try:
        problem = json.loads(text)
        detail = problem.get("detail") or problem.get("title")
    except (AttributeError, ValueError):
        detail = None
    kinds = {400: Invalid, 401: NotAllowed, 403: NotAllowed, 404: NotFound,
             409: Conflict, 413: Invalid, 415: Invalid, 422: Invalid,
             429: Unavailable}
    kind = kinds.get(status, Unavailable if status >= 500 else Error)
    return kind(detail or f"the server answered {status}", status,
                seconds_of(headers.get("Retry-After")))


def pauses():
    """The pauses between tries, without an end."""
    pause = PAUSE_S_MIN
    while True:
        yield random.uniform(pause / 2, pause)
        pause = min(2 * pause, PAUSE_S_MAX)


def encode_attribute(text):
    """An attribute of a CloudEvent as the value of a header."""
    plain = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) not in '"%')
    return urllib.parse.quote(text, safe=plain)


def encode_body(body):
    """The bytes, and a content type."""
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body), None
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return json.dumps(body).encode(), "application/json"


# Headers of a request that are not the sender's to choose.
OWN_HEADERS = {"authorization", "connection", "content-length", "content-type",
               "host", "transfer-encoding"}


def encode_headers(headers):
    for name, value in (headers or {}).items():
        if name.lower() in OWN_HEADERS or name.lower().startswith("ce-"):
            raise ValueError(f"'{name}' cannot be a header of a message")
        yield name, value.encode()


class Client:
    """A server. `timeout` is how long one try may take, and `retry_for` how
    long tries are repeated while the server cannot be reached or is busy."""

    def __init__(self, address, *, token=None, token_file=None, ca_file=None,
                 timeout=30, retry_for=60):
        if token_file:
            with open(token_file, encoding="utf-8") as file:
                token = file.read().strip()
        self.connections = Connections(address, ca_file)
        self.authorization = {"Authorization": f"Bearer {token}"} if token else {}
        self.timeout = timeout
        self.retry_for = retry_for

    def send(self, channel, body, *, id=None, type="message", source=None,
             subject=None, time=None, content_type=None, correlation_id=None,
             traceparent=None, headers=None, retry_for=None):
        """Send a message; returns a Receipt once it is durable. `body` is bytes,
        a str, or something that becomes JSON; `time` a datetime with a time
        zone, or a str in the format of RFC 3339. Without an id one is made, for
        all tries of this call; only with an id of your own a later call with
        the same message is a duplicate."""
        data, guess = encode_body(body)
        if hasattr(time, "isoformat"):
            time = time.isoformat()
        attributes = {
            "specversion": "1.0", "id": id or str(uuid.uuid4()), "type": type,
            "source": source or channel, "subject": subject, "time": time,
            "correlationid": correlation_id, "traceparent": traceparent}
        words = {f"ce-{name}": encode_attribute(str(value))
                 for name, value in attributes.items() if value is not None}
        words.update(encode_headers(headers))
        if content_type or guess:
            words["Content-Type"] = content_type or guess
        path = f"/v1/channels/{urllib.parse.quote(channel, safe='')}/messages"
        answer = self.post(path, data, words, retry_for)
        return Receipt(answer["status"], answer["id"], answer["source"],
                       answer.get("seq"), answer.get("parked", False))

    def claim(self, handler, *, max=1, wait=10, lease=60):
        """Claim up to `max` deliveries, and wait for one; a list, which is
        empty if there was none. Each is yours for `lease` seconds. Is not
        repeated by itself."""
        path = f"/v1/handlers/{urllib.parse.quote(handler, safe='')}/claim"
        answer = self.post_json(
            path, {"max": max, "wait": milliseconds(wait),
                   "lease": milliseconds(lease)},
            retry_for=0, timeout=self.timeout + wait)
        return [Delivery(handler, item) for item in answer["items"]]

    def settle(self, results, *, retry_for=None):
        """Settle deliveries: pairs of a delivery and None, which is done, or an
        Outcome. Returns a word for each: 'settled', 'late' (the lease was lost:
        somebody else has the delivery) or 'unknown'."""
        words = []
        for items in requests_of(results):
            try:
                answer = self.post_json("/v1/deliveries/settle", {"items": items},
                                        retry_for=retry_for)
                words += [item["status"] for item in answer["items"]]
            except Conflict:  # a single one that was late
                words.append("late")
        return words

    def extend(self, delivery, lease=60):
        """Make a lease end in `lease` seconds from now. Conflict: it is lost."""
        handler = urllib.parse.quote(delivery.handler, safe="")
        self.post_json(f"/v1/deliveries/{delivery.seq}/{handler}/extend",
                       {"fence": delivery.fence, "lease": milliseconds(lease)},
                       retry_for=0)

    def work(self, handler, function, **options):
        """Work on deliveries until SIGTERM or SIGINT; what Worker() takes. Call
        it from the main thread."""
        worker = Worker(self, handler, function, **options)
        before = {}

        def stop(*_):
            worker.stop()
            # The second signal does what it did before.
            for number, action in before.items():
                signal.signal(number, action)

        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, stop)
        try:
            worker.run()
        finally:
            for number, action in before.items():
                signal.signal(number, action)

    def post_json(self, path, value, retry_for=None, timeout=None):
        return self.post(path, json.dumps(value).encode(),
                         {"Content-Type": "application/json"}, retry_for, timeout)

    def post(self, path, body, headers, retry_for=None, timeout=None):
        """One request, with the tries that are allowed; returns the JSON."""
        headers = {**headers, **self.authorization}
        timeout = timeout or self.timeout
        end = time.monotonic() + (
            self.retry_for if retry_for is None else retry_for)
        for pause in pauses():
            try:
                return self.try_once(path, body, headers, timeout)
            except Unavailable as error:
                pause = max(pause, error.retry_after or 0)
                if time.monotonic() + pause >= end:
                    raise
            time.sleep(pause)

    def try_once(self, path, body, headers, timeout):
        try:
            status, answer, text = self.connections.request(
                path, body, headers, timeout)
        except ssl.SSLCertVerificationError as error:
            raise Error("the server's certificate is not trusted:"
                        f" {error.verify_message}; see ca_file") from error
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the server cannot be reached: {error!r}") from error
        if status not in (200, 202):
            raise error_of(status, answer, text)
        try:
            return json.loads(text)
        except ValueError as error:
            raise Error("the answer is not JSON: is this Postern?", status) from error


def outcome_word(outcome):
    for kind in (Retry, Snooze, Poison, Discard, Hold):
        if isinstance(outcome, kind):
            return kind.__name__.lower()
    return "retry"


def reason_text(outcome):
    """What cannot be sent would be refused, with all results of the request."""
    try:
        text = str(outcome)
    except Exception:
        text = type(outcome).__name__
    text = text[:REASON_LEN_MAX].replace("\0", " ")
    return text.encode("utf-8", "replace").decode()


def settlement(delivery, outcome):
    """One item of a request that settles."""
    if outcome is None:
        return delivery.where(outcome="done")
    more = {"outcome": outcome_word(outcome), "reason": reason_text(outcome)}
    if outcome.delay is not None:
        more["delay"] = milliseconds(outcome.delay)
    return delivery.where(**more)


def requests_of(results):
    """The items of as many requests as their length needs."""
    items, length = [], 0
    for delivery, outcome in results:
        item = settlement(delivery, outcome)
        item_length = len(json.dumps(item)) + len(", ")
        if items and (len(items) == SETTLE_COUNT_MAX
                      or length + item_length > SETTLE_LEN_MAX):
            yield items
            items, length = [], 0
        items.append(item)
        length += item_length
    if items:
        yield items


class Worker:
    """Claims deliveries of a handler and calls a function with each: on
    `concurrency` threads, with at most `batch` deliveries (as many) claimed at a
    time. Leases are extended while the function runs. stop() lets what runs
    finish and gives the rest back, which takes up to `wait` seconds more."""

    def __init__(self, client, handler, function, *, concurrency=1, batch=None,
                 lease=60, wait=10):
        self.client = client
        self.handler = handler
        self.function = function
        self.concurrency = concurrency
        self.batch = max(batch or 0, concurrency)
        self.lease = lease
        self.wait = wait
        self.stopping = threading.Event()
        self.idle = threading.Event()
        self.changed = threading.Condition()
        self.held = {}  # deliveries that are not settled, and when extended
        self.results = queue.Queue()

    def stop(self):
        """Ask run() to end; from any thread, or a signal handler."""
        self.stopping.set()

    def run(self):
        """Work until stop(). Raises what no repetition would change: that there
        is no such handler, that the token may not claim."""
        extender = threading.Thread(target=self.extend_leases, daemon=True)
        settler = threading.Thread(target=self.settle_results, daemon=True)
        extender.start()
        settler.start()
        try:
            with ThreadPoolExecutor(self.concurrency) as pool:
                self.claim_all(pool)
        finally:
            self.stopping.set()
            self.results.put(None)
            settler.join()
            self.idle.set()
            extender.join()

    def claim_all(self, pool):
        retries = pauses()
        while not self.stopping.is_set():
            with self.changed:
                free = self.batch - len(self.held)
                if free <= 0:
                    self.changed.wait(0.5)
                    continue
            try:
                deliveries = self.client.claim(
                    self.handler, max=min(free, CLAIM_COUNT_MAX), wait=self.wait,
                    lease=self.lease)
                retries = pauses()
            except Unavailable as error:
                log.warning("cannot claim deliveries of '%s': %s", self.handler, error)
                self.stopping.wait(max(next(retries), error.retry_after or 0))
                continue
            now = time.monotonic()
            with self.changed:
                self.held.update((each, now) for each in deliveries)
            for each in deliveries:
                pool.submit(self.run_one, each)

    def run_one(self, delivery):
        outcome = None
        if self.stopping.is_set():
            outcome = Snooze(0, "the worker stops")
        elif not delivery.lost.is_set():
            outcome = self.call(delivery)
        self.results.put((delivery, outcome))

    def call(self, delivery):
        try:
            self.function(delivery)
            return None
        except Outcome as outcome:
            return outcome
        except BaseException as error:  # also SystemExit: this is a thread
            log.exception("'%s' failed with message '%s'", self.handler, delivery.id)
            return Retry(f"{type(error).__name__}: {reason_text(error)}")

    def settle_results(self):
        """All results that wait are one request."""
        last = False
        while not last:
            results = [self.results.get()]
            while not self.results.empty():
                results.append(self.results.get())
            last = None in results
            results = [each for each in results if each]
            try:
                self.settle(results)
            except Exception as error:
                # The leases end, and others get the deliveries.
                log.error("cannot settle %d deliveries of '%s': %s",
                          len(results), self.handler, error)
            with self.changed:
                for delivery, _ in results:
                    self.held.pop(delivery, None)
                self.changed.notify()

    def settle(self, results):
        if not results:
            return
        # Later there is nothing left to settle.
        words = self.client.settle(results, retry_for=self.lease)
        for (delivery, _), word in zip(results, words):
            if word != "settled":
                log.warning("the result of '%s' for message '%s' does not count: %s",
                            self.handler, delivery.id, word)

    def extend_leases(self):
        """Each lease is extended when a third of it is over."""
        while not self.idle.wait(self.lease / 10):
            now = time.monotonic()
            with self.changed:
                due = [delivery for delivery, extended_at in self.held.items()
                       if now - extended_at >= self.lease / 3
                       and not delivery.lost.is_set()]
            for delivery in due:
                self.extend(delivery)

    def extend(self, delivery):
        try:
            now = time.monotonic()
            self.client.extend(delivery, self.lease)
        except (Conflict, NotFound):
            with self.changed:
                lost = delivery in self.held
            if lost:
                log.warning("the lease of message '%s' for '%s' is lost",
                            delivery.id, self.handler)
                delivery.lost.set()
            return
        except Error as error:
            log.warning("cannot extend a lease of '%s': %s", self.handler, error)
            return
        with self.changed:
            if delivery in self.held:
                self.held[delivery] = now


def secret_bytes(secret):
    """A secret: bytes as they are, a str in base64, with whsec_ or without."""
    if isinstance(secret, str):
        if secret.startswith("whsec_"):
            secret = secret[len("whsec_"):]
        try:
            secret = base64.b64decode(secret, validate=True)
        except ValueError as error:
            raise ValueError("a secret of webhooks is base64 after 'whsec_'") from error
    if not secret:
        # Anybody can sign with it.
        raise ValueError("a secret of webhooks is empty")
    return secret


def verify_webhook(secrets, headers, body, *, tolerance=300, now=None):
    """Check a webhook as Standard Webhooks defines; returns its id, which is the
    same each time it is sent. `secrets` is one or, while they are changed, a
    list; `headers` a mapping of any case; `body` the bytes as received, not
    parsed. Raises InvalidSignature."""
    if isinstance(secrets, (bytes, str)):
        secrets = [secrets]
    if isinstance(body, str):
        body = body.encode()
    found = {name.lower(): value for name, value in headers.items()}
    try:
        message_id = found["webhook-id"]
        sent_at = found["webhook-timestamp"]
        signatures = found["webhook-signature"].split()
    except KeyError as error:
        raise InvalidSignature(f"there is no header {error}") from None
    if (not sent_at.isascii() or not sent_at.isdigit()
            or len(sent_at) > TIME_LEN_MAX):
        raise InvalidSignature("the timestamp is not a number")
    if abs((time.time() if now is None else now) - int(sent_at)) > tolerance:
        raise InvalidSignature("the timestamp is too old or in the future")
    signed = f"{message_id}.{sent_at}.".encode() + bytes(body)
    good = False
    for secret in secrets:
        digest = hmac.new(secret_bytes(secret), signed, hashlib.sha256).digest()
        wanted = b"v1," + base64.b64encode(digest)
        for each in signatures:
            # Compares all of them: how long it takes tells nothing.
            good |= hmac.compare_digest(each.encode(), wanted)
    if not good:
        raise InvalidSignature("no signature is right for this secret")
    return message_id
