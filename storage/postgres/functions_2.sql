-- Schema 2 has the functions of schema 1.
SELECT 1;
