"""Bytes: messages, their codec, channels between processes and ranks."""
