"""The kernel: queues, commits, open threads and deliveries."""
