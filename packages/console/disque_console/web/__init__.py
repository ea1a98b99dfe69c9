"""The pages of the console.

How to add a page
-----------------

1. A view, in a module of ``views/``: ``async def view(visit: Visit) -> Shown``. ``Visit`` has the
   query (``visit.query``), the state of the cluster (``visit.cluster``), a way to send commands as
   the visitor (``await visit.calls.to(address, "SLOWLOG", "GET")``: errors are values), and the
   user and role. Raise ``Missing`` with a sentence if the page does not exist.
2. A template in ``templates/`` that begins with ``{% extends layout %}``. While the page is open,
   ``{% block live %}`` is rendered again and replaced in the browser every two seconds: the view is
   just called again, so it must be cheap. Forms with input fields go into ``{% block still %}``.
   Rows that can move get a ``data-key``. Show queue names with the filter ``name``, and link to
   them with ``url("/queue", name=...)``; the macros of ``parts.html`` make tables, tiles and action
   buttons.
3. A line in ``pages.PAGES``: path, title, view, template.
4. Its actions: lines in the table of ``model/actions.py``, or of another module that ``ACTIONS``
   includes. ``{{ button("purge", queue=row.name) }}`` makes a button with one or more fields, which
   visitors without permission do not see. The form, its token, the confirmation, the role check,
   the commands and the audit line all follow from the table.
5. A line in ``PAGES`` of ``tests/support/console.py``, which tests the page on wide and narrow
   screens, light and dark, with hostile names and as a viewer.

The content security policy (``headers.py``) forbids everything inline: scripts, styles, and
attributes such as ``style`` and ``onclick``. Every page must be readable without JavaScript.
"""
