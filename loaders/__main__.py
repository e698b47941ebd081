"""`python -m loaders`: the command line."""

from loaders.cli import entry

if __name__ == "__main__":
    entry()
