"""What runs user code: executors, and the forkserver that makes them."""
