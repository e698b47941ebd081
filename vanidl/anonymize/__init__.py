"""Paths, hosts, users and commands replaced by pseudonyms."""
