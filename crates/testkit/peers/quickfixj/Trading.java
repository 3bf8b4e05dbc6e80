// A session of market data and orders over FIX 4.4 by QuickFIX/J, for the matrix of programs.
//
// serve HOST PORT   sends a hundred snapshots to whoever asks, and fills each order at once
// ask HOST PORT     asks, sends an order for each snapshot that it gets, and says what came of them

import java.time.LocalDateTime;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import quickfix.ApplicationAdapter;
import quickfix.Connector;
import quickfix.DefaultMessageFactory;
import quickfix.FieldNotFound;
import quickfix.FileLogFactory;
import quickfix.MemoryStoreFactory;
import quickfix.Message;
import quickfix.Session;
import quickfix.SessionID;
import quickfix.SessionSettings;
import quickfix.SocketAcceptor;
import quickfix.SocketInitiator;
import quickfix.field.*;
import quickfix.fix44.ExecutionReport;
import quickfix.fix44.MarketDataRequest;
import quickfix.fix44.MarketDataSnapshotFullRefresh;
import quickfix.fix44.NewOrderSingle;

public class Trading {
    static final int SNAPSHOTS = 100;

    public static void main(String[] words) throws Exception {
        boolean serves = words[0].equals("serve");
        SessionSettings settings = settings(serves, words[1], words[2]);
        Buyer buyer = new Buyer();
        Connector connector = serves
                ? new SocketAcceptor(new Seller(), new MemoryStoreFactory(), settings,
                        new FileLogFactory(settings), new DefaultMessageFactory())
                : new SocketInitiator(buyer, new MemoryStoreFactory(), settings,
                        new FileLogFactory(settings), new DefaultMessageFactory());
        connector.start();
        if (serves) {
            new CountDownLatch(1).await();
        }
        boolean all = buyer.done.await(30, TimeUnit.SECONDS);
        connector.stop();
        System.out.println(all + ": " + buyer.snapshots + " snapshots, " + buyer.filled + " filled for " + buyer.paid);
        System.exit(0);
    }

    static SessionSettings settings(boolean serves, String host, String port) {
        SessionID id = serves ? new SessionID("FIX.4.4", "SELLER", "BUYER") : new SessionID("FIX.4.4", "BUYER", "SELLER");
        SessionSettings settings = new SessionSettings();
        settings.setString("ConnectionType", serves ? "acceptor" : "initiator");
        settings.setString(serves ? "SocketAcceptAddress" : "SocketConnectHost", host);
        settings.setString(serves ? "SocketAcceptPort" : "SocketConnectPort", port);
        settings.setString("FileLogPath", log(serves));
        settings.setString("HeartBtInt", "5");
        settings.setString("ReconnectInterval", "1");
        settings.setString("ResetOnLogon", "Y");
        settings.setString("StartTime", "00:00:00");
        settings.setString("EndTime", "00:00:00");
        settings.setString("NonStopSession", "Y");
        settings.setString("SocketTcpNoDelay", "Y");
        settings.setString(id, "BeginString", "FIX.4.4");
        settings.setString(id, "SenderCompID", id.getSenderCompID());
        settings.setString(id, "TargetCompID", id.getTargetCompID());
        return settings;
    }

    static String log(boolean serves) {
        return System.getenv("HOME") + (serves ? "/log-seller" : "/log-buyer");
    }

    static void send(Message message, SessionID session) {
        try {
            Session.sendToTarget(message, session);
        } catch (quickfix.SessionNotFound error) {
            throw new IllegalStateException(error);
        }
    }

    static class Seller extends ApplicationAdapter {
        private int number;

        @Override
        public void fromApp(Message message, SessionID session) throws FieldNotFound {
            if (message instanceof MarketDataRequest) {
                for (int i = 1; i <= SNAPSHOTS; i++) {
                    MarketDataSnapshotFullRefresh snapshot = new MarketDataSnapshotFullRefresh();
                    snapshot.set(new Symbol("SHUNT"));
                    MarketDataSnapshotFullRefresh.NoMDEntries entry = new MarketDataSnapshotFullRefresh.NoMDEntries();
                    entry.set(new MDEntryType(MDEntryType.OFFER));
                    entry.set(new MDEntryPx(100 + i));
                    entry.set(new MDEntrySize(10));
                    snapshot.addGroup(entry);
                    send(snapshot, session);
                }
            } else if (message instanceof NewOrderSingle) {
                NewOrderSingle order = (NewOrderSingle) message;
                number++;
                ExecutionReport report = new ExecutionReport(new OrderID("o" + number), new ExecID("e" + number),
                        new ExecType(ExecType.TRADE), new OrdStatus(OrdStatus.FILLED), order.getSide(), new LeavesQty(0),
                        new CumQty(order.getOrderQty().getValue()), new AvgPx(order.getPrice().getValue()));
                report.set(order.getClOrdID());
                report.set(order.getSymbol());
                send(report, session);
            }
        }
    }

    static class Buyer extends ApplicationAdapter {
        final CountDownLatch done = new CountDownLatch(SNAPSHOTS);
        volatile int snapshots;
        volatile int filled;
        volatile double paid;

        @Override
        public void onLogon(SessionID session) {
            MarketDataRequest request = new MarketDataRequest(new MDReqID("all"),
                    new SubscriptionRequestType(SubscriptionRequestType.SNAPSHOT_UPDATES), new MarketDepth(1));
            request.set(new MDUpdateType(MDUpdateType.FULL_REFRESH));
            MarketDataRequest.NoMDEntryTypes kind = new MarketDataRequest.NoMDEntryTypes();
            kind.set(new MDEntryType(MDEntryType.OFFER));
            request.addGroup(kind);
            MarketDataRequest.NoRelatedSym symbol = new MarketDataRequest.NoRelatedSym();
            symbol.set(new Symbol("SHUNT"));
            request.addGroup(symbol);
            send(request, session);
        }

        @Override
        public void fromApp(Message message, SessionID session) throws FieldNotFound {
            if (message instanceof MarketDataSnapshotFullRefresh) {
                snapshots++;
                NewOrderSingle order = new NewOrderSingle(new ClOrdID("c" + snapshots), new Side(Side.BUY),
                        new TransactTime(LocalDateTime.now()), new OrdType(OrdType.LIMIT));
                order.set(new Symbol("SHUNT"));
                order.set(new OrderQty(10));
                order.set(new Price(message.getGroup(1, NoMDEntries.FIELD).getDouble(MDEntryPx.FIELD)));
                send(order, session);
            } else if (message instanceof ExecutionReport) {
                filled++;
                paid += ((ExecutionReport) message).getAvgPx().getValue();
                done.countDown();
            }
        }
    }
}
