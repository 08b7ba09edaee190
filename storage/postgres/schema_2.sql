-- lists of words and what has ended by tenant, so that a search over many threads reads them at once
--
-- An entry of a b-tree holds 2,700 bytes, and the id of a tenant may have more: lists of such a one are read by thread.
CREATE INDEX words_by_tenant ON @.words (tenant_id, term) WHERE octet_length(tenant_id) <= 1024;
CREATE INDEX passages_ended_by_tenant ON @.passages (tenant_id) WHERE ended <> 0 AND octet_length(tenant_id) <= 1024;
