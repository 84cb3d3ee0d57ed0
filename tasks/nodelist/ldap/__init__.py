"""The nodelist's permanent store in LDAP. The modules `store`, `directory` and `connection` need python-ldap."""
