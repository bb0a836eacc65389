"""Many rows through one prompt: read, named, called, written, each once.

Above: `cli.batch`. Below: `api`, `durable`, `drivers`. `ids`, `control`, `lines` and `tally` are pure; files
are read in `rows` and kept in `index` and `books`, calls are in `calls`; `local` runs rows in this process and `shared`
on the workers of a database.
"""
