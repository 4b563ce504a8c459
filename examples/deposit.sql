-- SPDX-License-Identifier: MIT
-- The table that deposit.c writes to. Its owner creates it beforehand.
CREATE TABLE account (owner text PRIMARY KEY, balance integer NOT NULL);
