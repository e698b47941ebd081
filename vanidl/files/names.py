"""Names of files that vanidl writes into folders of its own."""

AB_FILE = "ab.json"
"""The runs of `vanidl ab`, in the folder that holds them."""
