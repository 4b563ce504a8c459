-- Changes the tables of version 1 to those of version 2. All functions but
-- those of 1_tables.sql are created again after it.

-- IF NOT EXISTS: some schemas of version 1 had it.
CREATE TABLE IF NOT EXISTS @rate (
	handler integer PRIMARY KEY,
	width bigint NOT NULL,
	slot bigint NOT NULL,
	counts integer[] NOT NULL
);
