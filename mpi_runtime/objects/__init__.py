"""Values: how they become bytes, and where large ones lie."""
