-- SPDX-License-Identifier: MIT
-- The database of the payment service.

-- No unique key: an order that is charged twice is to be seen, not refused.
CREATE TABLE charges (order_id bigint NOT NULL, cents integer NOT NULL);

-- payment_service.py: the orders that are still to be charged.
CREATE TABLE due (order_id bigint NOT NULL, cents integer NOT NULL);
