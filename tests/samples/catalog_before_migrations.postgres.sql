CREATE TABLE cursors (
    member character varying(256) NOT NULL,
    kind character varying(16) NOT NULL,
    started_from character varying(27) NOT NULL,
    "position" character varying(27) NOT NULL
);
CREATE TABLE failures (
    member character varying(256) NOT NULL,
    pid text NOT NULL,
    listed character varying(27),
    reason text NOT NULL,
    status integer,
    tries integer NOT NULL,
    failed_at character varying(27) NOT NULL,
    next_try character varying(27) NOT NULL
);
CREATE TABLE members (
    member character varying(256) NOT NULL,
    fence bigint DEFAULT '0'::bigint NOT NULL,
    last_harvested character varying(27),
    last_complete character varying(27),
    ran_at character varying(27),
    outcome text,
    error text
);
CREATE TABLE meta (
    name character varying(64) NOT NULL,
    value text NOT NULL
);
CREATE TABLE objects (
    member character varying(256) NOT NULL,
    pid text NOT NULL,
    listed character varying(27) NOT NULL,
    modified character varying(27) NOT NULL,
    format_id text NOT NULL,
    size bigint NOT NULL,
    checksum text NOT NULL,
    algorithm text NOT NULL,
    serial_version bigint,
    archived boolean NOT NULL,
    obsoletes text,
    obsoleted_by text,
    document bytea NOT NULL,
    fence bigint NOT NULL
);
INSERT INTO cursors VALUES ('urn:node:mnA', 'complete', '2024-05-14T08:59:00.000000Z', '2024-05-14T09:00:01.000000Z');
INSERT INTO failures VALUES ('urn:node:mnA', 'bad', '2024-05-14T09:00:00.000000Z', 'no such thing', 404, 1, '2024-05-14T09:00:09.000000Z', '2024-05-14T09:01:09.000000Z');
INSERT INTO members VALUES ('urn:node:mnB', 0, '2024-05-14T09:00:03.000000Z', '2024-05-14T09:00:04.000000Z', NULL, NULL, NULL);
INSERT INTO members VALUES ('urn:node:mnA', 6, NULL, NULL, '2024-05-14T09:00:10.000000Z', 'succeeded', NULL);
INSERT INTO objects VALUES ('urn:node:mnA', 'a', '2024-05-14T09:00:00.000000Z', '2024-05-14T09:00:00.000000Z', 'text/csv', 1, '86f7e437faa5a7fce15d1ddcb9eaeaea377667b8', 'SHA-1', 1, false, NULL, NULL, '\x3c612f3e', 5);
INSERT INTO objects VALUES ('urn:node:mnA', 'ü/?#%', '2024-05-14T09:00:00.000000Z', '2024-05-14T09:00:00.000000Z', 'text/csv', 5, '04a39b8ee9395c4ded685222408100493f2bd739', 'SHA-1', 1, false, NULL, NULL, '\x3c612f3e', 5);
ALTER TABLE ONLY cursors
    ADD CONSTRAINT cursors_pkey PRIMARY KEY (member, kind);
ALTER TABLE ONLY failures
    ADD CONSTRAINT failures_pkey PRIMARY KEY (member, pid);
ALTER TABLE ONLY members
    ADD CONSTRAINT members_pkey PRIMARY KEY (member);
ALTER TABLE ONLY meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (name);
ALTER TABLE ONLY objects
    ADD CONSTRAINT objects_pkey PRIMARY KEY (member, pid);
CREATE INDEX failures_by_next_try ON failures USING btree (member, next_try);
CREATE INDEX objects_by_date ON objects USING btree (member, listed);
