"""As much of PyTorch's DataLoader as its hooks look at, for Pythons without a PyTorch."""

from types import SimpleNamespace

version = SimpleNamespace(cuda=None, hip=None)
