"""Man pages and completions for bash, zsh and fish, made from the commands' help.

    python -m tools.manuals DIRECTORY

``described`` reads the commands, ``man`` and ``completions`` write.
"""
