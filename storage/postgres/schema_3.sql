-- acts know the role that asked for them, and reach only what that role may
--
-- Acts that are there already are of whoever brings the schema up to date, which is the owner; where `row_security.sql`
-- has run, each has its role.
ALTER TABLE @.acts ADD COLUMN IF NOT EXISTS role name NOT NULL DEFAULT current_user;
