-- Functions of schema 1. Each is a single call of a client's. `@.` stands for the name of the schema.
-- Their statements look rows up by keys. A plan that was made while a table was empty stays with its session, so none
-- may read a whole table.

CREATE FUNCTION @.destroy_passages(p_tid uuid, p_places bigint[]) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $body$
DECLARE
    v_count bigint;
    v_size bigint;
    v_terms bytea[];
BEGIN
    SELECT array_agg(DISTINCT CASE WHEN octet_length(t.term) <= 64 THEN t.term ELSE '\xff'::bytea || sha256(t.term) END)
    INTO v_terms
    FROM @.passage_indexes i
    JOIN @.passages p ON p.tid = i.tid AND p.place <= i.folded
    CROSS JOIN LATERAL (
        SELECT convert_to(w, 'UTF8') AS term FROM unnest(string_to_array(convert_from(p.terms, 'UTF8'), ' ')) w
    ) t
    WHERE i.tid = p_tid AND p.place = ANY (p_places);
    UPDATE @.words w
    SET places = ARRAY(SELECT x FROM unnest(w.places) x WHERE x <> ALL (p_places) ORDER BY x)
    WHERE w.tid = p_tid AND w.term = ANY (v_terms) AND w.places && p_places;
    DELETE FROM @.words w WHERE w.tid = p_tid AND w.term = ANY (v_terms) AND w.places = '{}';
    DELETE FROM @.vectors v WHERE v.tid = p_tid AND v.place = ANY (p_places);
    WITH gone AS (
        DELETE FROM @.passages p WHERE p.tid = p_tid AND p.place = ANY (p_places) RETURNING p.size
    )
    SELECT count(*), coalesce(sum(size), 0) INTO v_count, v_size FROM gone;
    UPDATE @.passage_indexes i SET passages = i.passages - v_count, terms = i.terms - v_size WHERE i.tid = p_tid;
END;
$body$;

-- What one event ends and destroys among the passages of earlier ones. 0: a key, 1: what a key begins with (from `key`
-- to before `beyond`), 2: an event, 3: an event and its twins, 4: an origin, 5: an event to destroy, 6: a key to destroy.
CREATE FUNCTION @.end_passages(
    p_tid uuid, p_seq bigint, p_what integer[], p_key bytea[], p_beyond bytea[], p_number bigint[]
) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $body$
DECLARE
    v_before bigint := p_seq << 12;
    v_keys bytea[];
    v_seqs bigint[];
    v_origins bigint[];
    v_drops bigint[];
    v_doomed bigint[];
BEGIN
    v_seqs := ARRAY(SELECT number FROM unnest(p_what, p_number) d(what, number) WHERE what IN (2, 3));
    v_origins := ARRAY(SELECT number FROM unnest(p_what, p_number) d(what, number) WHERE what = 4);
    v_keys := ARRAY(
        SELECT d.key FROM unnest(p_what, p_key) d(what, key) WHERE d.what = 0 AND d.key <> ''
        UNION
        SELECT p.key FROM unnest(p_what, p_number) d(what, number)
        JOIN @.passages p ON p.tid = p_tid AND p.place >= d.number << 12 AND p.place < (d.number + 1) << 12
        WHERE d.what = 3 AND p.key <> ''
    );
    IF cardinality(v_keys) > 0 THEN
        UPDATE @.passages p SET ended = p_seq
        WHERE p.tid = p_tid AND p.ended = 0 AND p.place < v_before AND p.key <> '' AND p.key = ANY (v_keys)
        AND substring(p.key FROM 1 FOR 512) = ANY (ARRAY(SELECT substring(k FROM 1 FOR 512) FROM unnest(v_keys) k));
    END IF;
    UPDATE @.passages p SET ended = p_seq
    FROM unnest(p_what, p_key, p_beyond) d(what, key, beyond)
    WHERE d.what = 1 AND p.tid = p_tid AND p.ended = 0 AND p.place < v_before AND p.key <> ''
    AND p.key >= d.key AND p.key < d.beyond AND substring(p.key FROM 1 FOR 512) >= substring(d.key FROM 1 FOR 512);
    IF cardinality(v_seqs) > 0 THEN
        UPDATE @.passages p SET ended = p_seq
        FROM unnest(v_seqs) s(seq)
        WHERE p.tid = p_tid AND p.ended = 0 AND p.place < v_before
        AND p.place >= s.seq << 12 AND p.place < (s.seq + 1) << 12;
    END IF;
    IF cardinality(v_origins) > 0 THEN
        UPDATE @.passages p SET ended = p_seq
        WHERE p.tid = p_tid AND p.ended = 0 AND p.place < v_before AND p.origins <> '{}' AND p.origins && v_origins;
    END IF;
    v_drops := ARRAY(SELECT number FROM unnest(p_what, p_number) d(what, number) WHERE what = 5);
    v_keys := ARRAY(SELECT d.key FROM unnest(p_what, p_key) d(what, key) WHERE d.what = 6 AND d.key <> '');
    v_doomed := ARRAY(
        SELECT p.place FROM unnest(v_drops) s(seq)
        JOIN @.passages p ON p.tid = p_tid AND p.place >= s.seq << 12 AND p.place < (s.seq + 1) << 12
        WHERE p.place < v_before
        UNION
        SELECT p.place FROM @.passages p
        WHERE cardinality(v_drops) > 0 AND p.tid = p_tid AND p.place < v_before
        AND p.origins <> '{}' AND p.origins && v_drops
        UNION
        SELECT p.place FROM @.passages p
        WHERE cardinality(v_keys) > 0 AND p.tid = p_tid AND p.place < v_before AND p.key <> '' AND p.key = ANY (v_keys)
        AND substring(p.key FROM 1 FOR 512) = ANY (ARRAY(SELECT substring(k FROM 1 FOR 512) FROM unnest(v_keys) k))
    );
    IF cardinality(v_doomed) > 0 THEN
        PERFORM @.destroy_passages(p_tid, v_doomed);
    END IF;
END;
$body$;

CREATE FUNCTION @.drop_passages(p_tid uuid) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $body$
BEGIN
    DELETE FROM @.passage_indexes WHERE tid = p_tid;
    DELETE FROM @.passages WHERE tid = p_tid;
    DELETE FROM @.words WHERE tid = p_tid;
    DELETE FROM @.vectors WHERE tid = p_tid;
    DELETE FROM @.embedded WHERE tid = p_tid;
END;
$body$;

-- Apply changes to the indexes that stand where they begin; which did. `x_n` and the like say of which thread, by its
-- place in `p_tid`.
CREATE FUNCTION @.write_passages(
    p_tid uuid[], p_tenant text[], p_version bigint,
    x_n integer[], x_after bigint[], x_upto bigint[], x_afresh boolean[], x_count bigint[], x_terms bigint[],
    r_n integer[], r_place bigint[], r_kind bytea[], r_role bytea[], r_speaker bytea[], r_at bigint[], r_key bytea[],
    r_origins text[], r_ended bigint[], r_size integer[], r_terms bytea[],
    d_n integer[], d_seq bigint[], d_what integer[], d_key bytea[], d_beyond bytea[], d_number bigint[]
) RETURNS integer[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
DECLARE
    v_n integer;
    v_stood integer[];
    v_step record;
BEGIN
    FOR v_n IN
        SELECT x.n FROM unnest(x_n, x_afresh) x(n, afresh) WHERE x.afresh AND p_tid[x.n] IS NOT NULL
    LOOP
        PERFORM @.drop_passages(p_tid[v_n]);
        INSERT INTO @.passage_indexes (tid, tenant_id, version, seq, folded, passages, terms)
        VALUES (p_tid[v_n], p_tenant[v_n], p_version, 0, 0, 0, 0);
    END LOOP;
    WITH moved AS (
        UPDATE @.passage_indexes i SET seq = x.upto, passages = i.passages + x.count, terms = i.terms + x.terms
        FROM unnest(x_n, x_after, x_upto, x_count, x_terms) x(n, after, upto, count, terms)
        WHERE i.tid = p_tid[x.n] AND i.version = p_version AND i.seq = x.after
        RETURNING x.n
    )
    SELECT coalesce(array_agg(moved.n), '{}') INTO v_stood FROM moved;
    INSERT INTO @.passages (
        tid, tenant_id, place, kind, role, speaker, at_us, key, origins, ended, size, terms
    )
    SELECT p_tid[r.n], p_tenant[r.n], r.place, r.kind, r.role, r.speaker, r.at_us, r.key, r.origins::bigint[], r.ended,
        r.size, r.terms
    FROM unnest(
        r_n, r_place, r_kind, r_role, r_speaker, r_at, r_key, r_origins, r_ended, r_size, r_terms
    ) r(n, place, kind, role, speaker, at_us, key, origins, ended, size, terms)
    WHERE r.n = ANY (v_stood);
    FOR v_step IN
        SELECT d.n, d.seq, array_agg(d.what) AS what, array_agg(d.key) AS key, array_agg(d.beyond) AS beyond,
            array_agg(d.number) AS number
        FROM unnest(d_n, d_seq, d_what, d_key, d_beyond, d_number) d(n, seq, what, key, beyond, number)
        WHERE d.n = ANY (v_stood) GROUP BY d.n, d.seq ORDER BY d.n, d.seq
    LOOP
        PERFORM @.end_passages(p_tid[v_step.n], v_step.seq, v_step.what, v_step.key, v_step.beyond, v_step.number);
    END LOOP;
    RETURN v_stood;
END;
$body$;

-- Write rows of projections: ranges go, then rows are dropped and put, then checkpoints are set. `p_n` and the like say
-- of which thread, by its place in `p_tid`; a row without a value is dropped.
CREATE FUNCTION @.write_rows(
    p_tid uuid[], p_tenant text[],
    g_n integer[], g_name text[], g_version bigint[], g_head bytea[], g_tail bytea[], g_end_head bytea[],
    g_end_tail bytea[],
    k_n integer[], k_name text[], k_version bigint[], k_head bytea[], k_digest bytea[], k_tail bytea[], k_value bytea[],
    c_n integer[], c_name text[], c_version bigint[], c_seq bigint[]
) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
BEGIN
    IF cardinality(g_n) > 0 THEN
        DELETE FROM @.projection_rows r
        USING unnest(g_n, g_name, g_version, g_head, g_tail, g_end_head, g_end_tail)
            g(n, name, version, head, tail, end_head, end_tail)
        WHERE p_tid[g.n] IS NOT NULL AND r.tid = p_tid[g.n] AND r.projection = g.name AND r.version = g.version
        AND r.head >= g.head AND r.head <= g.end_head
        AND (r.head, r.tail) >= (g.head, g.tail) AND (r.head, r.tail) < (g.end_head, g.end_tail);
    END IF;
    IF cardinality(k_n) > 0 THEN
        DELETE FROM @.projection_rows r
        USING unnest(k_n, k_name, k_version, k_head, k_digest, k_value) k(n, name, version, head, digest, value)
        WHERE k.value IS NULL AND p_tid[k.n] IS NOT NULL AND r.tid = p_tid[k.n] AND r.projection = k.name
        AND r.version = k.version AND r.head = k.head AND r.digest = k.digest;
        INSERT INTO @.projection_rows AS r (tid, tenant_id, projection, version, head, digest, tail, value)
        SELECT p_tid[k.n], p_tenant[k.n], k.name, k.version, k.head, k.digest, k.tail, k.value
        FROM unnest(k_n, k_name, k_version, k_head, k_digest, k_tail, k_value)
            k(n, name, version, head, digest, tail, value)
        WHERE k.value IS NOT NULL AND p_tid[k.n] IS NOT NULL
        ON CONFLICT (tid, projection, version, head, digest) DO UPDATE SET value = excluded.value;
    END IF;
    INSERT INTO @.checkpoints (tid, tenant_id, projection, version, seq)
    SELECT p_tid[c.n], p_tenant[c.n], c.name, c.version, c.seq
    FROM unnest(c_n, c_name, c_version, c_seq) c(n, name, version, seq)
    WHERE p_tid[c.n] IS NOT NULL
    ON CONFLICT (tid, projection, version) DO UPDATE SET seq = excluded.seq;
END;
$body$;

CREATE FUNCTION @.put_live(
    p_tid uuid[], p_tenant text[], l_n integer[], l_seq bigint[], l_place integer[], l_key bytea[], l_container text[]
) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
BEGIN
    IF array_position(l_key, NULL) IS NOT NULL THEN
        DELETE FROM @.live r USING unnest(l_n, l_seq, l_place, l_key) l(n, seq, place, key)
        WHERE l.key IS NULL AND r.tid = p_tid[l.n] AND r.seq = l.seq AND r.n = l.place;
    END IF;
    INSERT INTO @.live (tid, tenant_id, seq, n, key, container)
    SELECT p_tid[l.n], p_tenant[l.n], l.seq, l.place, l.key, l.container
    FROM unnest(l_n, l_seq, l_place, l_key, l_container) l(n, seq, place, key, container)
    WHERE l.key IS NOT NULL AND p_tid[l.n] IS NOT NULL
    ON CONFLICT (tid, seq, n) DO UPDATE SET key = excluded.key, container = excluded.container;
END;
$body$;

-- Put rows in the log. `e_n` says of which thread, by its place in `p_tid`; those of a NULL are passed over.
CREATE FUNCTION @.put_events(
    p_tid uuid[], p_tenant text[],
    e_n integer[], e_seq bigint[], e_key bytea[], e_id bytea[], e_type text[], e_version integer[], e_recorded bigint[],
    e_occurred bigint[], e_cause bytea[], e_correlation bytea[], e_salt bytea[], e_hash bytea[], e_payload bytea[],
    e_spilled bytea[], e_record bytea[]
) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $body$
BEGIN
    IF cardinality(array_remove(e_spilled, NULL)) > 0 THEN
        INSERT INTO @.blobs (tid, tenant_id, digest, body)
        SELECT DISTINCT ON (p_tid[e.n], e.spilled) p_tid[e.n], p_tenant[e.n], e.spilled, e.payload
        FROM unnest(e_n, e_payload, e_spilled) e(n, payload, spilled)
        WHERE e.spilled IS NOT NULL AND p_tid[e.n] IS NOT NULL
        ON CONFLICT (tid, digest) DO NOTHING;
    END IF;
    INSERT INTO @.events (
        tid, tenant_id, seq, id_key, id, type, version, recorded_at_us, occurred_at_us, causation_id, correlation_id,
        salt, hash, payload, spilled, record
    )
    SELECT p_tid[e.n], p_tenant[e.n], e.seq, e.key, e.id, e.type, e.version, e.recorded, e.occurred, e.cause,
        e.correlation, e.salt, e.hash, CASE WHEN e.spilled IS NULL THEN e.payload END, e.spilled, e.record
    FROM unnest(
        e_n, e_seq, e_key, e_id, e_type, e_version, e_recorded, e_occurred, e_cause, e_correlation, e_salt, e_hash,
        e_payload, e_spilled, e_record
    ) e(n, seq, key, id, type, version, recorded, occurred, cause, correlation, salt, hash, payload, spilled, record)
    WHERE p_tid[e.n] IS NOT NULL;
END;
$body$;

-- Commit one unit of events alone: the generation, or NULL where `commit_units` is to say what refuses it. It does what
-- that does with fewer and shorter statements, as this is the commonest call by far. Ids are looked up before the head
-- is locked: whoever writes one in between moves the head.
CREATE FUNCTION @.commit_one(
    p_wait_ms integer, p_is_full boolean,
    u_tid uuid, u_seq bigint, u_epoch bigint,
    h_seq bigint, h_hash bytea, h_epoch bigint, h_status text, h_open bigint, h_chunks bigint, h_tokens bigint,
    h_marks bytea,
    e_n integer[], e_seq bigint[], e_key bytea[], e_id bytea[], e_type text[], e_version integer[], e_recorded bigint[],
    e_occurred bigint[], e_cause bytea[], e_correlation bytea[], e_salt bytea[], e_hash bytea[], e_payload bytea[],
    e_spilled bytea[], e_record bytea[],
    l_n integer[], l_seq bigint[], l_place integer[], l_key bytea[], l_container text[]
) RETURNS bigint
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $body$
DECLARE
    v_set text := set_config('lock_timeout', p_wait_ms::text, true);
    v_tenant text;
BEGIN
    IF p_is_full THEN
        v_set := set_config('synchronous_commit', 'on', true);
    END IF;
    IF EXISTS (SELECT 1 FROM @.events l WHERE l.tid = u_tid AND l.id_key = ANY (e_key))
        OR EXISTS (SELECT 1 FROM @.events l WHERE l.tid = u_tid AND l.seq = ANY (e_seq))
    THEN
        RETURN NULL;
    END IF;
    UPDATE @.heads h
    SET seq = h_seq, hash = h_hash, epoch = h_epoch, status = h_status, open_compaction = h_open, chunks = h_chunks,
        tokens = h_tokens, marks = h_marks
    WHERE h.tid = u_tid AND h.seq = u_seq AND h.epoch = u_epoch AND h.status <> 'deleted'
    RETURNING h.tenant_id INTO v_tenant;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM @.put_events(
        ARRAY[u_tid], ARRAY[v_tenant], e_n, e_seq, e_key, e_id, e_type, e_version, e_recorded, e_occurred, e_cause,
        e_correlation, e_salt, e_hash, e_payload, e_spilled, e_record
    );
    IF cardinality(l_n) > 0 THEN
        PERFORM @.put_live(ARRAY[u_tid], ARRAY[v_tenant], l_n, l_seq, l_place, l_key, l_container);
    END IF;
    RETURN (SELECT s.value FROM @.store_state s WHERE s.name = 'generation');
END;
$body$;

-- Commit units, each whole or not at all. The answer has an outcome for each, then the store's generation:
-- 0 written, 1 the head has moved, 2 no such thread, 3 an event id is taken, 4 the thread exists,
-- 5 the log goes on past its head, 6 the thread to fork is not there, 7 the head's row is gone.
-- Where `u_epoch` is NULL the epoch is the store's own to give. `m_n` says which units make their thread.
CREATE FUNCTION @.commit_units(
    p_wait_ms integer, p_is_full boolean, p_version bigint,
    u_tid uuid[], u_seq bigint[], u_epoch bigint[],
    h_seq bigint[], h_hash bytea[], h_epoch bigint[], h_status text[], h_open bigint[], h_chunks bigint[],
    h_tokens bigint[], h_marks bytea[],
    m_n integer[], m_id text[], m_kind text[], m_user text[], m_tenant text[], m_agent text[], m_parent text[],
    m_metadata bytea[], m_policy bytea[], m_created bigint[], m_is_scope boolean[], m_fork uuid[], m_fork_id text[],
    m_fork_seq bigint[],
    e_n integer[], e_seq bigint[], e_key bytea[], e_id bytea[], e_type text[], e_version integer[], e_recorded bigint[],
    e_occurred bigint[], e_cause bytea[], e_correlation bytea[], e_salt bytea[], e_hash bytea[], e_payload bytea[],
    e_spilled bytea[], e_record bytea[],
    l_n integer[], l_seq bigint[], l_place integer[], l_key bytea[], l_container text[],
    g_n integer[], g_name text[], g_version bigint[], g_head bytea[], g_tail bytea[], g_end_head bytea[],
    g_end_tail bytea[],
    k_n integer[], k_name text[], k_version bigint[], k_head bytea[], k_digest bytea[], k_tail bytea[], k_value bytea[],
    c_n integer[], c_name text[], c_version bigint[], c_seq bigint[],
    x_n integer[], x_after bigint[], x_upto bigint[], x_afresh boolean[], x_count bigint[], x_terms bigint[],
    r_n integer[], r_place bigint[], r_kind bytea[], r_role bytea[], r_speaker bytea[], r_at bigint[], r_key bytea[],
    r_origins text[], r_ended bigint[], r_size integer[], r_terms bytea[],
    d_n integer[], d_seq bigint[], d_what integer[], d_key bytea[], d_beyond bytea[], d_number bigint[]
) RETURNS bigint[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
DECLARE
    v_outcome bigint[] := array_fill(0::bigint, ARRAY[cardinality(u_tid)]);
    v_made integer[] := '{}';
    v_tenant text[];
    v_tid uuid[];
    v_n integer;
    v_make record;
    v_found boolean;
BEGIN
    PERFORM set_config('lock_timeout', p_wait_ms::text, true);
    IF p_is_full THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF cardinality(m_n) > 0 THEN
        FOR v_make IN
            SELECT m.*, u_tid[m.n] AS tid
            FROM unnest(
                m_n, m_id, m_kind, m_user, m_tenant, m_agent, m_parent, m_metadata, m_policy, m_created, m_is_scope,
                m_fork, m_fork_id, m_fork_seq
            ) m(n, id, kind, user_id, tenant, agent, parent, metadata, policy, created, is_scope, fork, fork_id, fork_seq)
            ORDER BY u_tid[m.n]
        LOOP
            v_n := v_make.n;
            IF v_make.fork IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM @.heads h WHERE h.tid = v_make.fork AND h.status <> 'deleted')
            THEN
                v_outcome[v_n] := 6;
                CONTINUE;
            END IF;
            IF v_make.is_scope AND u_epoch[v_n] IS NOT NULL THEN
                v_outcome[v_n] := 1;
                CONTINUE;
            END IF;
            INSERT INTO @.heads (
                tid, tenant_id, seq, hash, epoch, status, open_compaction, chunks, tokens, marks
            )
            SELECT v_make.tid, v_make.tenant, u_seq[v_n], '', CASE WHEN v_make.is_scope THEN 1 << 20 ELSE u_epoch[v_n] END,
                'active', 0, 0, 0, '{}'
            WHERE v_make.is_scope OR NOT EXISTS (SELECT 1 FROM @.threads t WHERE t.tid = v_make.tid)
            ON CONFLICT (tid) DO NOTHING;
            v_found := FOUND;
            IF NOT v_found AND v_make.is_scope THEN
                UPDATE @.heads h
                SET tenant_id = v_make.tenant, seq = u_seq[v_n], epoch = ((h.epoch >> 20) + 1) << 20, status = 'active'
                WHERE h.tid = v_make.tid AND h.status = 'deleted';
                v_found := FOUND;
            END IF;
            IF NOT v_found THEN
                v_outcome[v_n] := 4;
                CONTINUE;
            END IF;
            DELETE FROM @.threads t WHERE t.tid = v_make.tid;
            INSERT INTO @.threads (
                tid, tenant_id, id, made_us, kind, user_id, agent_id, parent_id, metadata, policy, created_at_us,
                forked_tid, forked_id, forked_seq
            )
            VALUES (
                v_make.tid, v_make.tenant, v_make.id, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + v_n,
                v_make.kind, v_make.user_id, v_make.agent, v_make.parent, v_make.metadata, v_make.policy, v_make.created,
                v_make.fork, v_make.fork_id, v_make.fork_seq
            );
            v_made := v_made || v_n;
        END LOOP;
    END IF;

    PERFORM 1 FROM (
        SELECT 1 FROM @.heads h WHERE h.tid = ANY (u_tid) ORDER BY h.tid FOR NO KEY UPDATE
    ) locked;
    SELECT array_agg(
            CASE
                WHEN v_outcome[u.n] <> 0 THEN v_outcome[u.n]
                WHEN h.tid IS NULL AND EXISTS (SELECT 1 FROM @.threads t WHERE t.tid = u.tid) THEN 7
                WHEN h.tid IS NULL OR h.status = 'deleted' THEN 2
                WHEN h.seq <> u.seq OR h.epoch <> coalesce(u.epoch, h.epoch) THEN 1
                ELSE 0
            END ORDER BY u.n
        ),
        array_agg(h.tenant_id ORDER BY u.n)
    INTO v_outcome, v_tenant
    FROM unnest(u_tid, u_seq, u_epoch) WITH ORDINALITY u(tid, seq, epoch, n)
    LEFT JOIN @.heads h ON h.tid = u.tid;

    FOR v_n IN
        SELECT DISTINCT e.n FROM unnest(e_n, e_key) e(n, key)
        WHERE EXISTS (SELECT 1 FROM @.events l WHERE l.tid = u_tid[e.n] AND l.id_key = e.key)
    LOOP
        IF v_outcome[v_n] = 0 THEN
            v_outcome[v_n] := 3;
        END IF;
    END LOOP;
    FOR v_n IN
        SELECT DISTINCT e.n FROM unnest(e_n, e_seq) e(n, seq)
        WHERE EXISTS (SELECT 1 FROM @.events l WHERE l.tid = u_tid[e.n] AND l.seq = e.seq)
    LOOP
        IF v_outcome[v_n] = 0 THEN
            v_outcome[v_n] := 5;
        END IF;
    END LOOP;
    FOREACH v_n IN ARRAY v_made LOOP
        IF v_outcome[v_n] <> 0 THEN
            DELETE FROM @.heads h WHERE h.tid = u_tid[v_n];
            DELETE FROM @.threads t WHERE t.tid = u_tid[v_n];
        END IF;
    END LOOP;

    -- those that were refused have no thread from here on, and nothing is written of them
    v_tid := u_tid;
    FOR v_n IN 1 .. cardinality(u_tid) LOOP
        IF v_outcome[v_n] <> 0 THEN
            v_tid[v_n] := NULL;
        END IF;
    END LOOP;
    UPDATE @.heads h
    SET seq = u.seq, hash = u.hash, epoch = coalesce(u.epoch, h.epoch), status = u.status, open_compaction = u.opened,
        chunks = u.chunks, tokens = u.tokens, marks = u.marks
    FROM unnest(v_tid, h_seq, h_hash, h_epoch, h_status, h_open, h_chunks, h_tokens, h_marks)
        u(tid, seq, hash, epoch, status, opened, chunks, tokens, marks)
    WHERE h.tid = u.tid;
    IF cardinality(e_n) > 0 THEN
        PERFORM @.put_events(
            v_tid, v_tenant, e_n, e_seq, e_key, e_id, e_type, e_version, e_recorded, e_occurred, e_cause,
            e_correlation, e_salt, e_hash, e_payload, e_spilled, e_record
        );
    END IF;
    IF cardinality(l_n) > 0 THEN
        PERFORM @.put_live(v_tid, v_tenant, l_n, l_seq, l_place, l_key, l_container);
    END IF;
    IF cardinality(c_n) > 0 THEN
        PERFORM @.write_rows(
            v_tid, v_tenant, g_n, g_name, g_version, g_head, g_tail, g_end_head, g_end_tail,
            k_n, k_name, k_version, k_head, k_digest, k_tail, k_value, c_n, c_name, c_version, c_seq
        );
    END IF;
    IF cardinality(x_n) > 0 THEN
        PERFORM @.write_passages(
            v_tid, v_tenant, p_version, x_n, x_after, x_upto, x_afresh, x_count, x_terms,
            r_n, r_place, r_kind, r_role, r_speaker, r_at, r_key, r_origins, r_ended, r_size, r_terms,
            d_n, d_seq, d_what, d_key, d_beyond, d_number
        );
    END IF;
    RETURN v_outcome || (SELECT s.value FROM @.store_state s WHERE s.name = 'generation');
END;
$body$;
