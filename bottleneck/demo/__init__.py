"""`bottleneck demo`: a job on made-up photographs."""
