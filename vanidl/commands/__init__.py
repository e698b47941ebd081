"""The commands of `vanidl`, a module each."""
