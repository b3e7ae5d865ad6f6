"""Communication: messages, their codec, channels between the processes of a rank and between ranks."""
