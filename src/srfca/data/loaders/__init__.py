"""Data sets as their publishers lay them out: found, checked, parsed once, downloaded if asked."""
