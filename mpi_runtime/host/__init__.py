"""The machine: what it allows, which launcher started us, how interpreters are started."""
