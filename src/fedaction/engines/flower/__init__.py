"""Sites on machines of their own, over Flower: the server's engine, a site's side, and what passes between them.

Only `post`, `node` and `worker` import Flower, which is an extra of the package.
"""
