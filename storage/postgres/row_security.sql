-- Row-level security: a role sees and writes the rows of its own tenant, whatever it asks. Run it as the tables' owner,
-- who is not bound by it, on a schema that an engine has made; again after an upgrade, which it survives:
--
--     psql "$URL" -c 'SET search_path = memory_engine' -f row_security.sql
--
-- then name the tenant of each role. A role that is not named sees nothing:
--
--     INSERT INTO memory_engine.tenant_roles (role, tenant_id) VALUES ('acme_agent', 'acme');

CREATE TABLE IF NOT EXISTS tenant_roles (
    role name NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (role, tenant_id)
);
ALTER TABLE tenant_roles ENABLE ROW LEVEL SECURITY;
REVOKE ALL ON tenant_roles FROM PUBLIC;
GRANT SELECT ON tenant_roles TO PUBLIC;
DROP POLICY IF EXISTS own_tenant ON tenant_roles;
CREATE POLICY own_tenant ON tenant_roles FOR SELECT USING (role = current_user);

-- Acts name threads, and have no tenant: each belongs to the role that asked for it, and reaches its tenants' rows only.
ALTER TABLE acts ADD COLUMN IF NOT EXISTS role name NOT NULL DEFAULT current_user;
ALTER TABLE acts ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_tenant ON acts;
CREATE POLICY own_tenant ON acts USING (role = current_user) WITH CHECK (role = current_user);

DO $body$
DECLARE
    v_table text;
BEGIN
    FOR v_table IN
        SELECT c.relname
        FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> 'tenant_roles'
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', v_table);
        EXECUTE format('DROP POLICY IF EXISTS own_tenant ON %I', v_table);
        EXECUTE format(
            'CREATE POLICY own_tenant ON %1$I USING (tenant_id = ANY (ARRAY(SELECT r.tenant_id FROM tenant_roles r))) '
            'WITH CHECK (tenant_id = ANY (ARRAY(SELECT r.tenant_id FROM tenant_roles r)))',
            v_table
        );
    END LOOP;
END;
$body$;
