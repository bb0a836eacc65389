"""HTTP to providers: bytes out, bytes in, one deadline for the whole exchange, and a limit for every body.

`connections` finds the transport of an endpoint. It follows no redirects and keeps no cookies.
"""
