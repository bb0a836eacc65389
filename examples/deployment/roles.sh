#!/bin/sh
# The image of PostgreSQL runs this once, when it creates the database.
psql --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --set "password=$WORKER_PASSWORD" <<'SQL'
CREATE ROLE prompty_worker LOGIN PASSWORD :'password';
SQL
