BEGIN TRANSACTION;
CREATE TABLE cursors (
	member VARCHAR(256) NOT NULL,
	kind VARCHAR(16) NOT NULL,
	started_from VARCHAR(27) NOT NULL,
	position VARCHAR(27) NOT NULL,
	PRIMARY KEY (member, kind)
);
INSERT INTO "cursors" VALUES('urn:node:mnA','complete','2024-05-14T08:59:00.000000Z','2024-05-14T09:00:01.000000Z');
CREATE TABLE failures (
	member VARCHAR(256) NOT NULL,
	pid TEXT NOT NULL,
	listed VARCHAR(27),
	reason TEXT NOT NULL,
	status INTEGER,
	tries INTEGER NOT NULL,
	failed_at VARCHAR(27) NOT NULL,
	next_try VARCHAR(27) NOT NULL,
	PRIMARY KEY (member, pid)
);
INSERT INTO "failures" VALUES('urn:node:mnA','bad','2024-05-14T09:00:00.000000Z','no such thing',404,1,'2024-05-14T09:00:09.000000Z','2024-05-14T09:01:09.000000Z');
CREATE TABLE members (
	member VARCHAR(256) NOT NULL,
	fence BIGINT DEFAULT '0' NOT NULL,
	last_harvested VARCHAR(27),
	last_complete VARCHAR(27),
	ran_at VARCHAR(27),
	outcome TEXT,
	error TEXT,
	PRIMARY KEY (member)
);
INSERT INTO "members" VALUES('urn:node:mnA',6,NULL,NULL,'2024-05-14T09:00:10.000000Z','succeeded',NULL);
INSERT INTO "members" VALUES('urn:node:mnB',0,'2024-05-14T09:00:03.000000Z','2024-05-14T09:00:04.000000Z',NULL,NULL,NULL);
CREATE TABLE meta (
	name VARCHAR(64) NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (name)
);
CREATE TABLE objects (
	member VARCHAR(256) NOT NULL,
	pid TEXT NOT NULL,
	listed VARCHAR(27) NOT NULL,
	modified VARCHAR(27) NOT NULL,
	format_id TEXT NOT NULL,
	size BIGINT NOT NULL,
	checksum TEXT NOT NULL,
	algorithm TEXT NOT NULL,
	serial_version BIGINT,
	archived BOOLEAN NOT NULL,
	obsoletes TEXT,
	obsoleted_by TEXT,
	document BLOB NOT NULL,
	fence BIGINT NOT NULL,
	PRIMARY KEY (member, pid)
);
INSERT INTO "objects" VALUES('urn:node:mnA','a','2024-05-14T09:00:00.000000Z','2024-05-14T09:00:00.000000Z','text/csv',1,'86f7e437faa5a7fce15d1ddcb9eaeaea377667b8','SHA-1',1,0,NULL,NULL,X'3C612F3E',5);
INSERT INTO "objects" VALUES('urn:node:mnA','ü/?#%','2024-05-14T09:00:00.000000Z','2024-05-14T09:00:00.000000Z','text/csv',5,'04a39b8ee9395c4ded685222408100493f2bd739','SHA-1',1,0,NULL,NULL,X'3C612F3E',5);
CREATE INDEX objects_by_date ON objects (member, listed);
CREATE INDEX failures_by_next_try ON failures (member, next_try);
COMMIT;
