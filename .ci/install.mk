# Manual pages and completions, installing and uninstalling.

# ---- manual pages and completions, which the command prints ----
# The headers whose functions have manual pages.
FUNCTIONS   := hcq/hcq.h $(addprefix frontend/,tensor.h interop.h parallel.h jit.h nn.h onnx.h)
COMPLETIONS := bash-completion/completions/doorbell zsh/site-functions/_doorbell fish/vendor_completions.d/doorbell.fish
$(MAN): $(B)/doorbell .ci/man3.awk $(FUNCTIONS)
	$(call say,MAN,$@)
	$(Q)rm -rf $(B)/share && mkdir -p $(B)/share/man $(B)/share/man3 \
	  $(addprefix $(B)/share/completions/,$(dir $(COMPLETIONS)))
	$(Q)for c in $(COMPLETIONS); do $< help --completion=$${c%%[-/]*} >$(B)/share/completions/$$c || exit 1; done
	$(Q)for c in $$($< help --commands); do $< help --man $$c >$(B)/share/man/doorbell-$$c.1 || exit 1; done
	$(Q)awk -v folder=$(B)/share/man3 -v version=$(VERSION) -f .ci/man3.awk $(FUNCTIONS)
	$(Q)$< help --man >$@

# ---- installing ----
BINDIR     ?= $(PREFIX)/bin
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR     ?= $(PREFIX)/share/man
DATADIR    ?= $(PREFIX)/share
LIBRARIES   = libdoorbell libdoorbell-emu $(if $(MPI_LIB),libdoorbell-mpi)
HEADERS    := $(addprefix frontend/,doorbell.h tensor.h interop.h parallel.h jit.h nn.h onnx.h) \
              hcq/hcq.h emu/doorbell-emu.h frontend/source/opencl.h
# The run path lets programs find the library in any folder. Libs.private lists what the archive needs.
define PKG_CONFIG
libdir=$(LIBDIR)
includedir=$(INCLUDEDIR)

Name: doorbell
Description: userspace GPU driver stack and tensor compiler
Version: $(VERSION)
Libs: -L$${libdir} -Wl,-rpath,$${libdir} -ldoorbell
Libs.private: $(LIBS) -pthread
Cflags: -I$${includedir}
endef
export PKG_CONFIG
install: all
	$(Q)$(MAKE) --no-print-directory install-files
# Installs what is built, without building.
.PHONY: install-files
install-files:
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(LIBDIR)/pkgconfig $(INCLUDEDIR)/doorbell $(MANDIR)/man1 $(MANDIR)/man3)
	install -m 755 $(B)/doorbell $(DESTDIR)$(BINDIR)/doorbell
	for l in $(LIBRARIES); do install -m 755 $(B)/$$l.so $(DESTDIR)$(LIBDIR)/$$l.so.$(VERSION) && \
	  ln -sf $$l.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$$l.so.0 && ln -sf $$l.so.0 $(DESTDIR)$(LIBDIR)/$$l.so || exit 1; done
	install -m 644 $(B)/libdoorbell.a $(DESTDIR)$(LIBDIR)/libdoorbell.a
	install -m 644 $(HEADERS) $(DESTDIR)$(INCLUDEDIR)/doorbell/
	install -m 644 $(B)/share/man/* $(DESTDIR)$(MANDIR)/man1/
	install -m 644 $(B)/share/man3/* $(DESTDIR)$(MANDIR)/man3/
	cd $(B)/share/completions && find . -type f -exec install -D -m 644 {} $(abspath $(DESTDIR)$(DATADIR))/{} \;
	echo "$$PKG_CONFIG" >$(DESTDIR)$(LIBDIR)/pkgconfig/doorbell.pc
	$(if $(DESTDIR),,[ "$$(id -u)" != 0 ] || ldconfig)
uninstall:
	rm -f $(DESTDIR)$(BINDIR)/doorbell \
	  $(foreach l,libdoorbell libdoorbell-emu libdoorbell-mpi,$(DESTDIR)$(LIBDIR)/$(l).so*) \
	  $(addprefix $(DESTDIR)$(INCLUDEDIR)/doorbell/,$(notdir $(HEADERS))) \
	  $(addprefix $(DESTDIR),$(LIBDIR)/libdoorbell.a $(LIBDIR)/pkgconfig/doorbell.pc \
	    $(MANDIR)/man1/doorbell.1 $(MANDIR)/man1/doorbell-*.1 $(MANDIR)/man3/db_*.3) \
	  $(addprefix $(DESTDIR)$(DATADIR)/,$(COMPLETIONS))
	rmdir $(DESTDIR)$(INCLUDEDIR)/doorbell 2>/dev/null || true
