"""The parts of a call: remote functions, actor classes, options, arguments."""
