"""HTTP to providers: bytes out, bytes in, one deadline for the whole exchange, and a limit for every body.

`transports` shares the clients of `client`, which send over the connections of `network`. They follow no redirects and
keep no cookies. `failures` has the errors that SDK clients raise, too.
"""
