"""The version of the distribution, in one place."""

VERSION = "0.2.0"
