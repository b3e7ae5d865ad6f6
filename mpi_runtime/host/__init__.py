"""The machine: its limits, the launcher that started this process, how further interpreters are started."""
