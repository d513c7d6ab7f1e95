"""The explorer: a page in the browser in which ropes are turned, stretched and compared."""
