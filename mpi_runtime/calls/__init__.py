"""What a call is made of: remote functions, actor classes, options, arguments."""
