"""The web console: a page that shows the queues of a root and changes nothing. Needs the extra ``console``."""
