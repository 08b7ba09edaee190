-- The tenants whose rows a role may destroy, or hold: NULL for all of them, empty for none.
--
-- Row security binds neither superusers nor the tables' owner. A role that is gone destroys nothing, but its holds stay:
-- a dump that was put back elsewhere may name an owner who is not there.
CREATE FUNCTION @.tenants_of(p_role name, p_destroys boolean) RETURNS text[]
LANGUAGE plpgsql STABLE AS $body$
DECLARE
    v_role pg_catalog.pg_roles;
    v_table pg_catalog.pg_class;
    v_tenants text[] := '{}';
BEGIN
    SELECT * INTO v_role FROM pg_catalog.pg_roles r WHERE r.rolname = p_role;
    SELECT * INTO v_table FROM pg_catalog.pg_class c WHERE c.oid = '@.threads'::regclass;
    IF p_destroys AND (
        v_role.oid IS NULL OR NOT has_table_privilege(v_role.oid, '@.events'::regclass, 'DELETE')
    ) THEN
        RETURN '{}';
    END IF;
    IF NOT v_table.relrowsecurity OR v_role.rolsuper OR v_role.rolbypassrls
        OR (pg_has_role(v_role.oid, v_table.relowner, 'USAGE') AND NOT v_table.relforcerowsecurity)
    THEN
        RETURN NULL;
    END IF;
    IF to_regclass('@.tenant_roles') IS NOT NULL THEN
        v_tenants := ARRAY(SELECT t.tenant_id FROM @.tenant_roles t WHERE t.role = p_role);
    END IF;
    RETURN CASE WHEN v_role.oid IS NULL AND v_tenants = '{}' THEN NULL ELSE v_tenants END;
END;
$body$;

-- An act is of the role that asks for it, whatever its row says; only the tables' owner may say another.
CREATE FUNCTION @.sign_act() RETURNS trigger
LANGUAGE plpgsql AS $body$
BEGIN
    IF pg_has_role(current_user, (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = TG_RELID), 'USAGE') THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'INSERT' THEN
        NEW.role := current_user;
    ELSE
        NEW.role := OLD.role;
    END IF;
    RETURN NEW;
END;
$body$;
CREATE TRIGGER sign_act BEFORE INSERT OR UPDATE ON @.acts FOR EACH ROW EXECUTE FUNCTION @.sign_act();
