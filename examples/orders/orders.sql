-- SPDX-License-Identifier: MIT
-- The database of the order service. `postern migrate` or `postern serve` adds
-- the schema postern, with postern.publish().
CREATE TABLE orders (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	cents integer NOT NULL
);
