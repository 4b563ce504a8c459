-- SPDX-License-Identifier: MIT
-- The table that own_transaction.c writes to. Its owner creates it beforehand.
CREATE TABLE shipment (order_id text NOT NULL);
