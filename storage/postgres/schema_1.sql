-- threads, their logs, states and rows of views, the index for search, acts and leases
--
-- `@.` stands for the name of the schema. Every table of a thread is led by `tid`, the first 16 bytes
-- of the SHA-256 of its id, and so is every unique index: it is the column to distribute by. Texts that may hold a NUL,
-- or whose order matters, are bytes of UTF-8: PostgreSQL's text holds no NUL, and bytes compare as Python compares text.

CREATE TABLE @.schema_version (
    version integer PRIMARY KEY,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Facts of the store as a whole: `generation` counts what was deleted and erased.
CREATE TABLE @.store_state (
    name text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL
);
INSERT INTO @.store_state (name, value) VALUES ('generation', 0);

CREATE TABLE @.acts (
    id text COLLATE "C" PRIMARY KEY,
    kind text COLLATE "C" NOT NULL,
    plan bytea NOT NULL,
    asked_by bytea NOT NULL,
    reason bytea NOT NULL,
    asked_at_us bigint NOT NULL,
    done_at_us bigint NOT NULL,
    outcome bytea NOT NULL
);

-- `made_us` orders threads by their making: the server's clock, in microseconds.
CREATE TABLE @.threads (
    tid uuid NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    made_us bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    parent_id text COLLATE "C" NOT NULL,
    metadata bytea NOT NULL,
    policy bytea,
    created_at_us bigint NOT NULL,
    forked_tid uuid,
    forked_id text COLLATE "C",
    forked_seq bigint,
    PRIMARY KEY (tid)
);
-- Ids take up to 4,096 bytes, more than a b-tree's entry may; a hash index keeps four bytes of each.
CREATE INDEX threads_by_user ON @.threads USING hash (user_id) WHERE user_id <> '';
CREATE INDEX threads_by_parent ON @.threads USING hash (parent_id) WHERE parent_id <> '';
CREATE INDEX threads_by_fork ON @.threads (forked_tid) WHERE forked_tid IS NOT NULL;
CREATE INDEX threads_by_making ON @.threads (made_us);

-- Apart from `threads`, and loosely filled: each commit writes this row anew, and in its own page it costs no index.
CREATE TABLE @.heads (
    tid uuid NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    hash bytea NOT NULL,
    epoch bigint NOT NULL,
    status text COLLATE "C" NOT NULL,
    open_compaction bigint NOT NULL,
    chunks bigint NOT NULL,
    tokens bigint NOT NULL,
    marks bytea NOT NULL,
    PRIMARY KEY (tid)
) WITH (fillfactor = 60);

CREATE TABLE @.events (
    tid uuid NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    id_key bytea NOT NULL,
    id bytea,
    type text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    recorded_at_us bigint NOT NULL,
    occurred_at_us bigint,
    causation_id bytea,
    correlation_id bytea,
    salt bytea NOT NULL,
    hash bytea NOT NULL,
    payload bytea,
    spilled bytea,
    record bytea NOT NULL,
    PRIMARY KEY (tid, seq)
);
CREATE UNIQUE INDEX events_by_id ON @.events (tid, id_key);
CREATE INDEX events_by_correlation ON @.events USING hash (correlation_id) WHERE correlation_id IS NOT NULL;

CREATE TABLE @.blobs (
    tid uuid NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tid, digest)
);

CREATE TABLE @.live (
    tid uuid NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    n integer NOT NULL,
    key bytea NOT NULL,
    container text COLLATE "C" NOT NULL,
    PRIMARY KEY (tid, seq, n)
);

-- A key is `head` and `tail`: 512 bytes and what is beyond them, whose SHA-256 is `digest` (empty as `tail` is). So a
-- key may be as long as it likes, is unique, and (head, tail) is in its order.
CREATE TABLE @.projection_rows (
    tid uuid NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    projection text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    head bytea NOT NULL,
    digest bytea NOT NULL,
    tail bytea NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (tid, projection, version, head, digest)
);
CREATE INDEX projection_rows_by_name ON @.projection_rows (projection, version, tid);

CREATE TABLE @.checkpoints (
    tid uuid NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    projection text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (tid, projection, version)
);

CREATE TABLE @.leases (
    tid uuid NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    owner uuid NOT NULL,
    epoch bigint NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (tid)
);

CREATE TABLE @.passage_indexes (
    tid uuid NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    seq bigint NOT NULL,
    folded bigint NOT NULL,
    passages bigint NOT NULL,
    terms bigint NOT NULL,
    PRIMARY KEY (tid)
) WITH (fillfactor = 60);

CREATE TABLE @.passages (
    tid uuid NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    place bigint NOT NULL,
    kind bytea NOT NULL,
    role bytea NOT NULL,
    speaker bytea NOT NULL,
    at_us bigint NOT NULL,
    key bytea NOT NULL,
    origins bigint[] NOT NULL,
    ended bigint NOT NULL,
    size integer NOT NULL,
    terms bytea NOT NULL,
    PRIMARY KEY (tid, place)
);
CREATE INDEX passages_by_time ON @.passages (tid, at_us);
CREATE INDEX passages_ended ON @.passages (tid, ended) WHERE ended <> 0;
CREATE INDEX passages_by_key ON @.passages (tid, substring(key FROM 1 FOR 512)) WHERE key <> '';
CREATE INDEX passages_drawn ON @.passages (tid) WHERE origins <> '{}';

-- The places of the passages that hold a term: a row for each time that words were indexed, none of whose places is
-- beyond `last`, nor at or before that of the row before it. A term over 64 bytes is its SHA-256 behind a byte 255.
CREATE TABLE @.words (
    tid uuid NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    term bytea NOT NULL,
    last bigint NOT NULL,
    places bigint[] NOT NULL,
    PRIMARY KEY (tid, term, last)
);

CREATE TABLE @.vectors (
    tid uuid NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    place bigint NOT NULL,
    vector bytea NOT NULL,
    PRIMARY KEY (tid, model, place)
);

CREATE TABLE @.embedded (
    tid uuid NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    place bigint NOT NULL,
    PRIMARY KEY (tid, model)
);
