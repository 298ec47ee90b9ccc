"""What runs inside a worker process, and how it and the main process communicate."""
